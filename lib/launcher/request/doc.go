// Package request reads the language in which resources are asked for:
//
//	duration=4 days & cuda(mem=14G) * 2 & cpu(mem=16G, cores=8) | cuda(mem=40G)
//
// A request is a list of alternatives, the preferred one first. The grammar:
//
//	request  = both { "|" both }
//	both     = part { "&" part }
//	part     = "(" request ")" | term
//	term     = "duration" "=" DURATION
//	         | ( "cuda" | "gpu" | "mps" | "rocm" ) "(" [ gpuarg { "," gpuarg } ] ")" [ "*" COUNT ]
//	         | "cpu" "(" [ cpuarg { "," cpuarg } ] ")"
//	         | "nodes" "=" COUNT
//	         | ( "partition" | "feature" | "qos" | "account" | "host" ) ( "=" | "!=" ) NAME
//	gpuarg   = "mem" "=" SIZE | "model" "=" NAME
//	cpuarg   = "mem" "=" SIZE | "cores" "=" COUNT
//
// White space and comments ("#" to the end of the line) may stand between any
// two tokens. The package knows nothing of launchers.
package request
