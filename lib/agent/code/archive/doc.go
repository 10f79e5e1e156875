// Package archive unpacks the archives that code, models and data sets come in: .tar.gz and .tar.zst,
// by one set of rules.
//
// Archives come from outside: nothing in one can be written outside the directory that it is unpacked
// into, whatever its names and links are; entries other than files, directories and links are
// refused; and the number of files and bytes is limited. An error of the archive itself is a
// BadError; others, such as a full disk, are errors of this machine and may pass.
package archive
