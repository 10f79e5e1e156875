# fish completion of ponos-worker, made by completions/generate

complete -c ponos-worker -n 'not __fish_seen_subcommand_from local pilot' -f
complete -c ponos-worker -n 'not __fish_seen_subcommand_from local pilot' -a 'local' -d 'run the tasks of mode local that wait in a directory'
complete -c ponos-worker -n 'not __fish_seen_subcommand_from local pilot' -a 'pilot' -d 'run packed tasks inside a job of Slurm'
complete -c ponos-worker -n 'not __fish_seen_subcommand_from local pilot' -l version -s V -d 'print the version and exit'
complete -c ponos-worker -n 'not __fish_seen_subcommand_from local pilot' -l help -s h -d 'show help'
complete -c ponos-worker -n '__fish_seen_subcommand_from local' -f -a '(__fish_complete_directories)'
complete -c ponos-worker -n '__fish_seen_subcommand_from local' -l jobs -s j -x -d 'do nothing if N workers run already'
complete -c ponos-worker -n '__fish_seen_subcommand_from local' -l help -s h -d 'show help'
complete -c ponos-worker -n '__fish_seen_subcommand_from pilot' -f -a '(__fish_complete_directories)'
complete -c ponos-worker -n '__fish_seen_subcommand_from pilot' -l help -s h -d 'show help'
