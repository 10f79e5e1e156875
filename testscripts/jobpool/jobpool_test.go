package jobpool

import (
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil, "jobpool", "lfind") }

func TestScripts(t *testing.T) { harness.Run(t, harness.Options{}) }
