// Package nfs runs agents on a file system that behaves as NFS does between hosts:
// each has its own view of one directory, in which attributes, names and the absence
// of names are kept for some seconds, and locks of others are not seen.
package nfs
