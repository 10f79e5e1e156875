# fish completion of ponos-start, made by completions/generate

complete -c ponos-start -f
complete -c ponos-start -l config -s c -r -F -d 'read the configuration FILE (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)'
complete -c ponos-start -l jobs -s j -x -d 'prepare and submit N tasks at a time'
complete -c ponos-start -l dry-run -s n -d 'prepare the tasks, and print the jobs without submitting them'
complete -c ponos-start -l pack -d 'run short tasks inside shared pilot jobs (Slurm; see slurm.pack)'
complete -c ponos-start -l verbose -s v -d 'report each step on standard error'
complete -c ponos-start -l version -s V -d 'print the version and exit'
complete -c ponos-start -l help -s h -d 'show help'
