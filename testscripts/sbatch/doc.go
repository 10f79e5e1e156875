// Package sbatch holds what lib/slurm/sbatch knows against a real sbatch: random options, held jobs and jobs that run.
package sbatch
