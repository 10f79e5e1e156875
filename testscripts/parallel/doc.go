// Package parallel holds jobpool to GNU parallel: the examples in jobpool(1) are run with
// both.
package parallel
