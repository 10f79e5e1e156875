package harness

import "os"

// coverVariable names a directory to which each process of the tools writes what it has covered:
// the tools are then built for that ("make cover").
const coverVariable = "PONOS_TEST_COVER"

// coverArgs are the arguments of go build for tools that write what they cover to dir.
func coverArgs(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	return []string{"-cover", "-coverpkg=" + module + "/lib/...," + module + "/cmd/...", "-ldflags=-X " + module + "/lib/base/app.coverDir=" + dir},
		os.Chmod(dir, 0o777|os.ModeSticky) // tools of other users write there as well
}
