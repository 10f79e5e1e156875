# submit.sh: submits run.sbatch as a task of the agent, which ignores #SBATCH lines: the options are given here.
# A file with PMI=pmi2 or MPICC=mpiicc for --env-file would choose another MPI.
exec ponos-submit --name pi --directory . --sbatch ntasks=4 --sbatch time=10 "$@" -- bash run.sbatch
