# fish completion of vast-reap, made by completions/generate

complete -c vast-reap -f
complete -c vast-reap -l config -s c -r -F -d 'read the configuration FILE (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)'
complete -c vast-reap -l destroy -d 'destroy the instances that were found'
complete -c vast-reap -l max -x -d 'destroy at most N instances'
complete -c vast-reap -l older -x -d 'ignore instances younger than DURATION'
complete -c vast-reap -l agent -x -d 'find instances of the agent NAME, whose host is lost'
complete -c vast-reap -l account -d 'find all instances of the account with the label of any agent'
complete -c vast-reap -l bill -d 'compare the estimated cost of each task with the bill'
complete -c vast-reap -l since -x -d 'with --bill, tasks that ended in the last DURATION'
complete -c vast-reap -l json -d 'print JSON instead of a table'
complete -c vast-reap -l version -s V -d 'print the version and exit'
complete -c vast-reap -l help -s h -d 'show help'
complete -c vast-reap -l help-all -d 'show help with all options'
