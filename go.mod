module github.com/ponos-tools/ponos

go 1.26
