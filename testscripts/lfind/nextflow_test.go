package lfind

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// opened are the packages of Java that Nextflow looks into.
var opened = []string{
	"java.lang", "java.io", "java.net", "java.nio", "java.nio.file.spi", "java.util", "java.util.concurrent", "java.util.concurrent.atomic",
	"java.util.concurrent.locks", "java.util.regex", "sun.net.www.protocol.file", "sun.net.www.protocol.ftp", "sun.net.www.protocol.http",
	"sun.net.www.protocol.https", "sun.net.www.protocol.jar", "sun.nio.ch", "sun.nio.fs",
}

// TestNextflow runs a pipeline with the example's configuration, by the real Nextflow on the cluster.
func TestNextflow(t *testing.T) {
	harness.Programs(t, "java=default-jre-headless", "mvn=maven")
	s := harness.As(t, "root")
	list := filepath.Join(t.TempDir(), "classpath")
	if out, err := exec.Command("mvn", "--quiet", "--batch-mode", "--file", filepath.Join(harness.Root(), "testscripts/lfind/recipes/nextflow.xml"),
		"org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath", "-Dmdep.outputFile="+list).CombinedOutput(); err != nil {
		t.Fatalf("mvn: %v: %s", err, out)
	}
	classes, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join(harness.Root(), "examples/nextflow/nextflow.config"))
	if err != nil {
		t.Fatal(err)
	}
	s.Write("nextflow.config", string(example))
	s.Write("quick.config", "executor { pollInterval = '1 sec'; queueStatInterval = '2 sec' }\n")
	s.Write("main.nf", `
process prepare {
	output: val 'data'
	script: 'echo preparing'
}
process train {
	label 'gpu'
	input: val data
	output: stdout
	script: 'echo "trained on $SLURM_JOB_PARTITION with $SLURM_GPUS_ON_NODE GPU"'
}
workflow { prepare | train | view }
`)
	s.Env = append(s.Env, "NXF_HOME="+filepath.Join(s.Dir, ".nextflow"), "NXF_OFFLINE=true", "NXF_PLUGINS_DEFAULT=false")
	args := []string{"java"}
	for _, name := range opened {
		args = append(args, "--add-opens=java.base/"+name+"=ALL-UNNAMED")
	}
	args = append(args, "-classpath", strings.TrimSpace(string(classes)), "nextflow.cli.Launcher", "run", "main.nf", "-c", "quick.config", "-ansi-log", "false")
	out, errs, status := s.Run(args...)
	if status != 0 || !strings.Contains(out, "\ntrained on gpu with 1 GPU\n") {
		log, _ := os.ReadFile(filepath.Join(s.Dir, ".nextflow.log"))
		t.Errorf("nextflow: %q, %s, status %d: %s", out, errs, status, log)
	}
}
