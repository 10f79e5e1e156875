// Package request reads the language in which resources are requested:
//
//	duration=4 days & cuda(mem=14G) * 2 & cpu(mem=16G, cores=8) | cuda(mem=40G)
//
// A request is a list of alternatives, the preferred one first. The grammar:
//
//	request  = both { "|" both }
//	both     = part { "&" part }
//	part     = "(" request ")" | term
//	term     = "duration" "=" DURATION
//	         | ( "cuda" | "gpu" | "mps" | "rocm" | "xpu" ) "(" [ gpuarg { "," gpuarg } ] ")" [ "*" COUNT ]
//	         | "cpu" "(" [ cpuarg { "," cpuarg } ] ")"
//	         | ( "nodes" | "tasks" ) "=" COUNT
//	         | ( "cpus" "per" "gpu" | "cpus_per_gpu" ) "=" COUNT
//	         | ( "mem" "per" "gpu" | "mem_per_gpu" | "disk" ) "=" SIZE
//	         | ( "gres" | "license" ) "(" NAME ")" [ "*" COUNT ]
//	         | "exclusive" | "preemptible" "=" ( "no" | "yes" )
//	         | "deadline" "=" ( TIME | DURATION )
//	         | ( "partition" | "feature" | "qos" | "account" | "host" ) ( "=" | "!=" ) NAME
//	gpuarg   = "mem" ( ( "=" | ">=" | "<=" ) SIZE | "=" SIZE ".." SIZE )
//	         | "model" ( "=" | "!=" ) ( NAME | "[" NAME { "," NAME } "]" )
//	         | "cc" ( ( "=" | ">=" | "<=" ) NUMBER | "=" NUMBER ".." NUMBER )
//	cpuarg   = "mem" "=" SIZE | "cores" "=" COUNT
//
// White space and comments ("#" to the end of the line) may stand between any
// two tokens. The package knows nothing of launchers.
package request
