package answers

import (
	"os"
	"path/filepath"
	"testing"
)

// The columns of associations and of QoS for which sacctmgr is asked.
const (
	AssociationColumns = "cluster,account,user,partition,parentname,defaultqos,qos,share,grpjobs,grpjobsaccrue,grpsubmit,grptres,grptresmins,grptresrunmins,grpwall,maxjobs,maxjobsaccrue,maxsubmit,maxtres,maxtrespernode,maxtresmins,maxtresrunmins,maxwall,minprio"
	QOSColumns         = "name,priority,flags,preempt,preemptmode,gracetime,usagefactor,usagethreshold,grpjobs,grpjobsaccrue,grpsubmit,grptres,grptresmins,grptresrunmins,grpwall,maxjobspu,maxjobspa,maxjobsaccruepu,maxjobsaccruepa,maxsubmitpu,maxsubmitpa,maxtres,maxtrespernode,maxtrespu,maxtrespa,maxtresmins,maxtresrunminspu,maxtresrunminspa,mintres,maxwall,minprio"
)

// Cluster returns the answers of the cluster of the tests, Slurm 22.05.8, as its user alice got them.
// Dir has the captured files: lib/slurm/testdata/22.05.8.
func Cluster(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	lines := map[string]string{
		"scontrol show config": "ClusterName = testbed\nSLURM_VERSION = 22.05.8\nAccountingStorageType = accounting_storage/slurmdbd\n" +
			"AccountingStorageEnforce = associations,limits,qos\nEnforcePartLimits = NO\n",
		"scontrol --oneliner show licenses":                                         "No licenses configured in Slurm.\n",
		"scontrol --all --oneliner show reservation":                                "No reservations in the system\n",
		"sacctmgr --noheader --parsable show user alice format=user,defaultaccount": "alice|research|\n",
		"id -un": "alice\n",
		"id -Gn": "users\n",
	}
	for line, name := range map[string]string{
		"scontrol --all --oneliner --details show node":                                            "show_nodes_oneline.txt",
		"scontrol --all --oneliner show partitions":                                                "show_partitions_oneline.txt",
		"sacctmgr --noheader --parsable show associations user=alice format=" + AssociationColumns: "associations-alice.txt",
		"sacctmgr --noheader --parsable show qos format=" + QOSColumns:                             "qos.txt",
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		lines[line] = string(b)
	}
	lines["sacctmgr --noheader --parsable show associations user= format="+AssociationColumns] = ""
	return lines
}
