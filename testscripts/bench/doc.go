// Package bench measures what the agent costs, side by side with what it is
// compared to: a turn with the calls of Slurm that it makes, and starting tasks
// with a bare loop of sbatch. It prints ratios; what is timed is never a test.
package bench
