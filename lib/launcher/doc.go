// Package launcher finds the launcher for a request: the entry of launchers.yaml,
// and within a Slurm entry the partitions, the QoS, the account and the options of
// sbatch, that give what was requested.
//
// # The search
//
// Launchers are tried by decreasing weight, those of equal weight in the order of
// the file, and that for each alternative of the request in turn. Within a Slurm
// launcher every combination of a group of nodes, a QoS and an account is a
// candidate. Candidates are ordered by priority; the first that gives what was
// asked for decides QoS and account, and every other one that can be had with the
// same options is added, so that Slurm has a choice.
//
// The options found are sound: of the nodes that the launcher knows, none that
// does not satisfy the request can get the job. A candidate that cannot be distinguished
// apart from such nodes is not taken.
//
// A figure that is not known refuses nothing.
//
// The answer is a function of the file, the request and what Slurm said; it does
// not depend on chance.
package launcher
