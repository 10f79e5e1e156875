// Package names stores the results of named tasks: any number of names, in a few megabytes of memory.
// The rest is kept in an unlinked file that disappears with the process.
//
// Names are kept as hashes of 120 bits, which are unique in practice.
package names
