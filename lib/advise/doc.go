// Package advise answers questions about a cluster: which options satisfy a request, whether Slurm
// would accept a job, when it would start, who waits and why, and what to request next. It submits
// nothing, and Slurm itself decides. It has no code of its own.
//
// # Face
//
// A request or the options of a job go in, options of sbatch or a diagnosis come out. lfind and
// fairshare show them. Others use launcher (Load, Find, Refused, Hopeless), launcher/request
// (the language) and usage (what jobs of a name have used); market uses gpu as well.
//
// # Packages
//
//	admission           a model of Slurm's limits: yes, no and whose rule, or unknown; pure
//	diagnosis           why a pending job waits: cause, proof, start, one action; pure
//	forecast            a replay of Slurm's scheduling: who starts when, what keeps others back, holes; pure
//	gpu                 the catalogue of GPUs: names, memory, compute capability
//	launcher            the search of a launcher for a request, and the verdict on options beforehand
//	launcher/cluster    the nodes of a cluster and the rights of the user, asked of Slurm and cached
//	launcher/convert    launchers.yaml from the output of Slurm
//	launcher/file       launchers.yaml, connectors.yaml, tokens.yaml
//	launcher/request    the language of requests; pure
//	launcher/token      counted resources that processes of a machine share
//	planner             asks Slurm for what a forecast needs; keeps and scores forecasts
//	priority            fair share and priority factors; pure
//	probe               what nodes were found to have, and the script that finds it out
//	usage               what jobs used of what they requested, and what to request next; pure
//
// # Files
//
//	~/.config/ponos/launchers.yaml, gpus.yaml         of the user, read only; lfind convert prints the first
//	~/.cache/ponos/                                   what a cluster has, for minutes (launcher/cluster)
//	~/.local/state/ponos/nodes/NODE@CLUSTER           what a node has (probe); /etc/ponos/nodes of the site
//	~/.local/state/ponos/forecasts/CLUSTER.jsonl      forecasts, and what became true (planner)
//
// # Promises, and the tests that hold them
//
//	One model of the cluster, held against a real slurmctld by random cases
//	    testscripts/admission/admission_test.go:TestAgainstSlurm
//	What is found satisfies the request, and Slurm accepts it
//	    lib/advise/launcher/property_test.go:TestFoundSatisfies
//	    testscripts/lfind/cluster_test.go:TestAnswersAreAccepted
//	    testscripts/lfind/cluster_test.go:TestJobsLand
//	A forecast comes with how often it was right
//	    lib/advise/forecast/history_test.go:TestScore
//	    testscripts/fairshare/cluster/cluster_test.go:TestSlurm
//	A diagnosis names what keeps the job back, never only where it is never, and an action that helps
//	    testscripts/fairshare/cluster/reasons_test.go:TestReasonsOfSlurm
//	A Slurm that does not answer refuses nothing
//	    lib/advise/launcher/verdict_test.go:TestNoVerdict
//	No file makes a reader take memory or time without a bound
//	    lib/advise/launcher/file/file_test.go:TestBomb
package advise
