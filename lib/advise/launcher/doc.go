// Package launcher finds the launcher for a request: the entry of launchers.yaml and, within a
// Slurm entry, the partitions, the QoS, the account and the other options of sbatch that
// satisfy the request.
//
// # The search
//
// For each alternative of the request in turn, launchers are tried by decreasing weight, and
// those of equal weight in the order of the file. Within a Slurm launcher, every combination of
// a group of nodes, a QoS and an account is a candidate. Candidates are ordered by priority.
// The first that satisfies the request determines QoS and account; every other one that the
// same options can select is added, so that Slurm has more nodes to choose from.
//
// The answer is sound: of the nodes that the launcher knows, Slurm can place the job only on
// nodes that satisfy the request. A candidate that no option can separate from other nodes is
// not used.
//
// An unknown figure, such as the number of cores, does not exclude a node.
//
// The search is deterministic: the answer depends on the file, the request and Slurm's output
// only.
package launcher
