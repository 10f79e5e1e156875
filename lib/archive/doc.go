// Package archive unpacks the archives that code, models and data sets come in:
// .tar.gz and .tar.zst, by one set of rules.
//
// Archives come from outside: nothing in one can be written outside the directory
// that it is unpacked into, whatever its names and links say; what is neither file
// nor directory nor link is refused; and what it unpacks to is bounded, in files and
// in bytes. An error that is the archive's own is a BadError, others, such as a full
// disk, are this machine's and may pass.
package archive
