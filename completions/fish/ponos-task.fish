# fish completion of ponos-task, made by completions/generate

complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint' -f
complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint' -a 'env' -d 'print variables of the task and the run, for eval'
complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint' -a 'note' -d 'append a line about the task to a file'
complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint' -a 'checkpoint' -d 'save the work, then requeue the job'
complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint' -l version -s V -d 'print the version and exit'
complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint' -l help -s h -d 'show help'
complete -c ponos-task -n '__fish_seen_subcommand_from env' -f
complete -c ponos-task -n '__fish_seen_subcommand_from env' -l verbose -s v -d 'tell on standard error what is done'
complete -c ponos-task -n '__fish_seen_subcommand_from env' -l help -s h -d 'show help'
complete -c ponos-task -n '__fish_seen_subcommand_from note' -f
complete -c ponos-task -n '__fish_seen_subcommand_from note' -l file -s f -r -F -d 'append to FILE (default: $PONOS_NOTES, or notes.jsonl in /var/log/ponos or ~/.local/state/ponos)'
complete -c ponos-task -n '__fish_seen_subcommand_from note' -l task -x -a '(__fish_complete_list , "ponos-task words tasks 2>/dev/null")' -d 'ID of the task (default: what the job was marked with)'
complete -c ponos-task -n '__fish_seen_subcommand_from note' -l help -s h -d 'show help'
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -f
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -l signal -s s -x -a 'USR1 USR2 TERM HUP' -d 'save at SIGNAL: USR1, USR2, TERM or HUP (default: USR1 and TERM)'
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -l timeout -s t -x -d 'end the saving command after TIME, such as 90s or 5m'
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -l no-requeue -d 'save only'
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -l verbose -s v -d 'tell on standard error what is done'
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -l help -s h -d 'show help'
