// Package file reads launchers.yaml, and connectors.yaml and tokens.yaml in the same directory.
//
// Every problem of a file is reported with its line and column. A problem that leaves the
// meaning clear is a warning; any other makes the file unusable. The package computes nothing:
// lib/advise/launcher resolves inheritance.
package file
