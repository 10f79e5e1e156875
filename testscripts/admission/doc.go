// Package admission holds the model of lib/advise/admission against a real Slurm: random
// partitions, QoS, associations and jobs.
package admission
