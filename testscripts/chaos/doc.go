// Package chaos runs agents on a real Slurm while everything around them breaks,
// and then checks every task: its command took effect once, its final state is
// what its command did, its log is whole, and nothing is left behind.
//
//	make chaos                      the short form; CI runs that of this package
//	make chaos SEED=7 TIME=10m      300 tasks and some 600 faults
//	go test ./testscripts/chaos -run TestChaos -accounting=false -seed=7 -time=2m
//	                                on a Slurm without accounting
//
// A run has a directory, ports and a cluster of its own by its seed, so that
// several can continue side by side. The directory is /tmp/ponos-chaos-SEED. It stays
// there after a failure: events.jsonl has every fault with its times.
package chaos
