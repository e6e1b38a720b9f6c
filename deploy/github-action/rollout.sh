#!/usr/bin/env bash
# Starts the plan of $PLAN and does about each exit code what the job was told to: see docs/ci.md.
# The identical plan attaches to a rollout that runs and is done at once when it has converged, so
# a job that is retried starts nothing twice.
set -uo pipefail

service=$(sed -n 's/^service: *\([^ #]*\).*/\1/p' "$PLAN" | head -n 1)
common=(--timeout "${TIMEOUT:-1h}")
[ -z "${JUNIT:-}" ] || common+=(--junit "$JUNIT")

vctl rollout start "$PLAN" --reason "${REASON:-}" "${common[@]}"
code=$?

for _ in {1..20}; do
  [ "$code" = 4 ] && [ "${ON_PAUSED:-leave}" = promote ] || break
  vctl rollout promote -s "$service" --reason "${REASON:-}" "${common[@]}"
  code=$?
done

case "$code/${ON_PAUSED:-leave}/${ON_TIMEOUT:-leave}" in
  4/abort/* | 5/*/abort)
    vctl rollout abort -s "$service" --yes --reason "given up by CI" --timeout "${TIMEOUT:-1h}" ;;
esac

[ -z "${GITHUB_OUTPUT:-}" ] || echo "exit-code=$code" >>"$GITHUB_OUTPUT"
exit "$code"
