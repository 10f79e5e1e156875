// Package names remembers what became of named tasks: any number of names, in a few
// megabytes of memory. What is too much is kept in a file that has no name and goes
// with the process.
//
// Names are kept as hashes of 120 bits, which no two names share in practice.
package names
