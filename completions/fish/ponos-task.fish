# fish completion of ponos-task, made by completions/generate

complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint run' -f
complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint run' -a 'env' -d 'print the task and facts about the job as variables, for eval'
complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint run' -a 'note' -d 'append a line about the task to a file'
complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint run' -a 'checkpoint' -d 'save the work, then requeue the job'
complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint run' -a 'run' -d 'run a command in slices, until it is done'
complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint run' -l version -s V -d 'print the version and exit'
complete -c ponos-task -n 'not __fish_seen_subcommand_from env note checkpoint run' -l help -s h -d 'show help'
complete -c ponos-task -n '__fish_seen_subcommand_from env' -f
complete -c ponos-task -n '__fish_seen_subcommand_from env' -l verbose -s v -d 'report each step on standard error'
complete -c ponos-task -n '__fish_seen_subcommand_from env' -l help -s h -d 'show help'
complete -c ponos-task -n '__fish_seen_subcommand_from note' -f
complete -c ponos-task -n '__fish_seen_subcommand_from note' -l file -s f -r -F -d 'append to FILE (default: $PONOS_NOTES, or notes.jsonl in /var/log/ponos or ~/.local/state/ponos)'
complete -c ponos-task -n '__fish_seen_subcommand_from note' -l task -x -a '(ponos-task words tasks (commandline -ct | string replace -r \'^(--[a-z-]+=)?["\\\']?\' \'\') 2>/dev/null)' -d 'ID of the task (default: the mark of the job)'
complete -c ponos-task -n '__fish_seen_subcommand_from note' -l help -s h -d 'show help'
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -f
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -l signal -s s -x -a 'ALRM CONT HUP INT PWR QUIT TERM USR1 USR2 XCPU' -d 'save at SIGNAL (default: USR1 and TERM)'
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -l timeout -s t -x -d 'end the saving command after TIME, such as 90s or 5m'
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -l no-requeue -d 'save without requeueing the job'
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -l verbose -s v -d 'report each step on standard error'
complete -c ponos-task -n '__fish_seen_subcommand_from checkpoint' -l help -s h -d 'show help'
complete -c ponos-task -n '__fish_seen_subcommand_from run' -f
complete -c ponos-task -n '__fish_seen_subcommand_from run' -l until-done -d 'continue in the next slice: an array task, or this job requeued'
complete -c ponos-task -n '__fish_seen_subcommand_from run' -l save -x -a '(__fish_complete_command)' -d 'save with the shell command CMD (default: send SIGTERM to WORK)'
complete -c ponos-task -n '__fish_seen_subcommand_from run' -l signal -s s -x -a 'ALRM CONT HUP INT PWR QUIT TERM USR1 USR2 XCPU' -d 'save at SIGNAL (default: USR1 and TERM)'
complete -c ponos-task -n '__fish_seen_subcommand_from run' -l lead -x -d 'save TIME before the time limit; 0: at signals only'
complete -c ponos-task -n '__fish_seen_subcommand_from run' -l again -x -d 'exit status N of WORK requests another slice'
complete -c ponos-task -n '__fish_seen_subcommand_from run' -l timeout -s t -x -d 'end the saving command after TIME, such as 90s or 5m'
complete -c ponos-task -n '__fish_seen_subcommand_from run' -l verbose -s v -d 'report each step on standard error'
complete -c ponos-task -n '__fish_seen_subcommand_from run' -l help -s h -d 'show help'
