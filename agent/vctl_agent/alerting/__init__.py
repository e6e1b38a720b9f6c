"""Alerts on their way out: which webhooks, what each of them is sent, and the sending."""
