"""All verbs of vctl, where each is, and its line in a list of commands.

Nothing is imported for a verb that is not used. A test holds each line to the first sentence of
its command's own help.
"""

from vctl_cli.verb import Verb, Verbs

ROOT = Verbs(
    "Roll out what an LLM fleet serves: verified, and back in a moment.",
    {
        "rollout": Verbs(
            "Start, follow and steer rollouts.",
            {
                "start": Verb("rollout_start:start", "Start a rollout and follow it to its end."),
                "plan": Verb(
                    "rollout_plan:plan",
                    "Show what a rollout would change, take, and be stopped by.",
                ),
                "validate": Verb(
                    "rollout_validate:validate",
                    "Check plan files, without etcd and without a fleet.",
                ),
                "status": Verb("rollout_status:status", "Show a service's rollout."),
                "watch": Verb("rollout_watch:watch", "Follow a rollout to its end."),
                "abort": Verb("rollout_abort:abort", "Give a rollout up; nothing is revoked."),
                "pause": Verb(
                    "rollout_pause:pause", "Stop a rollout where it is, until it is resumed."
                ),
                "resume": Verb("rollout_resume:resume", "Let a paused rollout go on."),
                "promote": Verb(
                    "rollout_promote:promote", "Let a rollout go on to its next step now."
                ),
                "retry": Verb("rollout_retry:retry", "Start the last rollout again."),
                "history": Verb("rollout_history:history", "Show the decisions of rollouts."),
                "show": Verb("rollout_show:show", "Show one rollout in full."),
            },
        ),
        "rollback": Verb("rollback:rollback", "Return a service to an earlier release."),
        "status": Verb("status:status", "Show the fleet's services and nodes."),
        "events": Verb("events:events", "Show what was decided on the fleet, by whom and why."),
        "doctor": Verb("doctor:doctor", "Look for what is wrong, and say what mends it."),
        "nodes": Verb("nodes:nodes", "Show the nodes, the worst first."),
        "node": Verbs(
            "Look after the nodes.",
            {
                "gc": Verb("node_gc:gc", "Have nodes remove the artifacts that nothing needs."),
                "drain": Verb("node_drain:drain", "Have a node take no new requests."),
                "undrain": Verb("node_undrain:undrain", "Have a drained node take requests again."),
            },
        ),
        "verify-weights": Verb(
            "verify_weights:verify_weights", "Hash weights and compare them with their root."
        ),
        "manifest": Verb("manifest:manifest", "Hash weights and write their manifest."),
        "weights": Verbs(
            "Compare weights.",
            {
                "diff": Verb(
                    "weights_diff:weights_diff", "Show what differs between two versions."
                ),
                "compare": Verb(
                    "weights_compare:weights_compare",
                    "Compare two sets of weights as numbers, in ULPs.",
                ),
            },
        ),
        "service": Verbs(
            "Take services up, list them, and let them go.",
            {
                "list": Verb("service_list:list_services", "List the services of a fleet."),
                "import": Verb(
                    "service_import:import_service",
                    "Adopt an adapter that engines serve already.",
                ),
                "set": Verb("service_set:set_service", "Hand a service to a tenant."),
                "eject": Verb(
                    "service_eject:eject", "Hand a service back to its engines, and let it go."
                ),
            },
        ),
        "release": Verbs(
            "Make and look at releases.",
            {
                "create": Verb("release_create:create", "Make a release that nothing serves yet."),
                "list": Verb("release_list:list_releases", "List a service's releases."),
                "show": Verb("release_show:show", "Show one release in full."),
                "diff": Verb("release_diff:diff", "Show what two releases do not share."),
            },
        ),
        "config": Verbs(
            "Say where commands act.",
            {
                "get-contexts": Verb(
                    "config_get_contexts:get_contexts",
                    "List the contexts; * marks the current one.",
                ),
                "use-context": Verb(
                    "config_use_context:use_context",
                    "Act on a context from now on.",
                ),
                "set": Verb(
                    "config_set:set_context",
                    "Make or change a context.",
                ),
                "accept-restore": Verb(
                    "config_accept_restore:accept_restore",
                    "Go on with etcd as a restored backup left it.",
                ),
                "init-auth": Verb(
                    "config_init_auth:init_auth",
                    "Print what makes etcd's users for this fleet.",
                ),
            },
        ),
        "route": Verbs(
            "Look at how traffic is split.",
            {
                "show": Verb("route_show:show", "Show how a service's traffic is split now."),
                "export": Verb(
                    "route_export:export",
                    "Write a service's present split for another proxy.",
                ),
                "explain": Verb(
                    "route_explain:explain", "Say which release a request would get, and why."
                ),
                "override": Verbs(
                    "Releases that groups have of their own.",
                    {
                        "set": Verb(
                            "route_override_set:set_override", "Hold a group to a release, at once."
                        ),
                        "rm": Verb("route_override_rm:rm", "End what groups have of their own."),
                    },
                ),
            },
        ),
        "agent": Verbs(
            "Run the node's agent.",
            {
                "init": Verb(
                    "agent_init:init",
                    "Write what a node needs to run its agent and gateway.",
                ),
                "run": Verb(
                    "agent_run:run",
                    "Start vctl-agent in this process's place.",
                    passes_options=True,
                ),
            },
        ),
        "dev": Verbs(
            "A fleet on this machine.",
            {"up": Verb("dev_up:up", "Run etcd and a fleet on this machine until Ctrl-C.")},
        ),
        "demo": Verb("demo:demo", "Tell and measure the whole story on this machine."),
        "completion": Verb("completion:completion", "Print a shell's completion script."),
        "version": Verb("version:version", "Print the version."),
    },
)
