# train.sh STEPS: a stand-in for a training. Its state is the number of finished steps. It continues from the
# saved state, and writes its state when it gets SIGUSR2, which save.sh sends.
step=$(cat saved 2>/dev/null || echo 0)
echo "from step $step"
trap 'echo "$step" >state.new && mv state.new state' USR2
echo $$ >train.pid
while [ "$step" -lt "$1" ]; do
	sleep 0.05
	step=$((step + 1))
	[ "$((step % 20))" != 0 ] || echo "step $step"
done
echo "done after $step steps"
