# fish completion of vast-reap, made by completions/generate

complete -c vast-reap -f
complete -c vast-reap -l config -s c -r -F -d 'read the configuration FILE (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)'
complete -c vast-reap -l destroy -d 'destroy what was found'
complete -c vast-reap -l max -x -d 'destroy at most N instances'
complete -c vast-reap -l older -x -d 'leave instances alone that are younger than DURATION'
complete -c vast-reap -l agent -x -d 'look for instances of the agent NAME: one whose host is lost'
complete -c vast-reap -l account -d 'look for all instances of the account with the label of any agent'
complete -c vast-reap -l bill -d 'show what tasks were estimated to cost and what was billed'
complete -c vast-reap -l since -x -d 'with --bill, of tasks that ended within DURATION'
complete -c vast-reap -l json -d 'print JSON instead of a table'
complete -c vast-reap -l version -s V -d 'print the version and exit'
complete -c vast-reap -l help -s h -d 'show help'
complete -c vast-reap -l help-all -d 'show help with all options'
