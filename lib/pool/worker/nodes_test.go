package worker

import (
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// What srun reads describes the nodes of the task if they are of one job. If they are of several, nothing
// of any job is left for it, and mpirun still finds all nodes.
func TestEnvironmentOfATaskOfSeveralNodes(t *testing.T) {
	environ := []string{"PATH=/bin", "SLURM_CONF=/etc/slurm.conf", "SLURM_JOB_ID=1", "SLURM_JOBID=1", "SLURM_JOB_NODELIST=a,c", "SLURM_NTASKS=2", "SLURMD_NODENAME=a"}
	for _, tt := range []struct {
		kind string
		jobs []string // of the two nodes
		want string   // the variables that srun reads of the job
	}{
		{"srun", []string{"1", "1"}, "SLURM_CONF=/etc/slurm.conf SLURM_JOB_ID=1 SLURM_JOBID=1 SLURM_JOB_NODELIST=a,b SLURM_NTASKS=4"},
		{"srun", []string{"1", "2"}, "SLURM_CONF=/etc/slurm.conf SLURM_JOB_ID=" + severalJobs},
		{"ssh", []string{"", ""}, ""},
	} {
		w := &worker{Options: Options{Temp: t.TempDir()}, setup: wire.Setup{Reach: wire.Reach{Kind: tt.kind}}}
		r := &wire.Run{Key: wire.Key{Seq: 1, Attempt: 1}, Need: pool.Need{CPUs: 2, Nodes: 2}}
		for i, job := range tt.jobs {
			host := string("ab"[i])
			r.Nodes = append(r.Nodes, wire.Node{Node: host + "@" + job, Host: host, Job: job, Group: -1})
		}
		env, err := w.describeNodes(r, environ)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, kv := range env {
			for _, name := range []string{"SLURM_CONF=", "SLURM_JOB_ID=", "SLURM_JOBID=", "SLURM_JOB_NODELIST=", "SLURM_NTASKS="} {
				if strings.HasPrefix(kv, name) {
					got = append(got, kv)
				}
			}
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s, jobs %q: %q, want %q", tt.kind, tt.jobs, s, tt.want)
		}
		if !slices.Contains(env, "JOBPOOL_NODELIST=a,b") || !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "HYDRA_HOST_FILE=") }) {
			t.Errorf("%s, jobs %q: mpirun does not find the nodes: %q", tt.kind, tt.jobs, env)
		}
	}
}
