# fish completion of ponos-setup, made by completions/generate

complete -c ponos-setup -f
complete -c ponos-setup -l config -s c -r -F -d 'read the configuration FILE (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)'
complete -c ponos-setup -l init -x -a '(__fish_complete_directories)' -d 'write an example configuration to DIR, and exit'
complete -c ponos-setup -l mode -x -a 'local slurm' -d 'with --init, the MODE to write: local or slurm (slurm if Slurm answers)'
complete -c ponos-setup -l check -d 'check only, change nothing'
complete -c ponos-setup -l tasks -d 'only list the tasks of the agent, from its state directory'
complete -c ponos-setup -l no-daemon -d 'do not submit the agent as a Slurm job'
complete -c ponos-setup -l every -x -d 'the job of the agent takes a turn every DURATION'
complete -c ponos-setup -l json -d 'print JSON instead of a table'
complete -c ponos-setup -l verbose -s v -d 'report each step on standard error'
complete -c ponos-setup -l version -s V -d 'print the version and exit'
complete -c ponos-setup -l help -s h -d 'show help'
complete -c ponos-setup -l help-all -d 'show help with all options'
