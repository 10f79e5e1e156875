# save.sh: makes the training write its state, and saves it. It fails if no state is written within a minute.
rm -f state
kill -USR2 "$(cat train.pid)" || exit
for _ in $(seq 600); do
	if [ -e state ]; then exec mv state saved; fi
	sleep 0.1
done
exit 1
