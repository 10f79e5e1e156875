package slurm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/slurm"
)

func TestSubmitLimits(t *testing.T) {
	const assoc = " MaxTRESPJ=\n"
	text := "Current Association Manager state\n\nAssociation Records\n\n" +
		"ClusterName=c Account=lab UserName= ParentAccount=uni(2) GrpSubmitJobs=100(60) MaxSubmitJobs=8" + assoc +
		"ClusterName=c Account=uni UserName= ParentAccount=root(1) GrpSubmitJobs=70(70) MaxSubmitJobs=" + assoc +
		"ClusterName=c Account=other UserName= ParentAccount=root(1) GrpSubmitJobs=1(1) MaxSubmitJobs=" + assoc +
		"ClusterName=c Account=lab UserName=alice(1000) ParentAccount= GrpSubmitJobs=N(8) MaxSubmitJobs=8(8)" + assoc +
		"ClusterName=c Account=lab UserName=bob(1001) ParentAccount= GrpSubmitJobs=N(1) MaxSubmitJobs=1(1)" + assoc +
		"QOS Records\n\nQOS=short(1) GrpSubmitJobs=20(9) Account Limits= lab={MaxSubmitJobsPA=10(9)} User Limits= 1000={MaxSubmitJobsPU=5(5)} 1001={MaxSubmitJobsPU=5(4)}\n"
	usages, err := slurm.ParseUsages(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for refusal, want := range map[string]string{
		"sbatch: AssocMaxSubmitJobLimit; Job violates accounting/QOS policy (job submit limit)":      "alice 8/8, account uni 70/70, account lab 60/100",
		"sbatch: QOSMaxSubmitJobPerUserLimit; Job violates accounting/QOS policy (job submit limit)": "alice in QoS short 5/5, account lab in QoS short 9/10, QoS short 9/20",
		"sbatch: Slurm temporarily unable to …":                                                      "alice in QoS short 5/5, alice 8/8, account uni 70/70, account lab in QoS short 9/10, QoS short 9/20, account lab 60/100",
	} {
		var got []string
		for _, l := range submitLimits(usages, "alice", 1000, "", refusal) {
			got = append(got, fmt.Sprintf("%s %d/%d", l.Of, l.Used, l.Max))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %s", refusal, strings.Join(got, ", "))
		}
	}
}

// Of several accounts, the limits of the one that the job names count, and those above it.
func TestSubmitLimitsOfTheNamedAccount(t *testing.T) {
	const assoc = " MaxTRESPJ=\n"
	text := "Current Association Manager state\n\nAssociation Records\n\n" +
		"ClusterName=c Account=lab UserName= ParentAccount=uni(2) GrpSubmitJobs=9(9) MaxSubmitJobs=" + assoc +
		"ClusterName=c Account=uni UserName= ParentAccount=root(1) GrpSubmitJobs=70(12) MaxSubmitJobs=" + assoc +
		"ClusterName=c Account=big UserName= ParentAccount=root(1) GrpSubmitJobs=5(5) MaxSubmitJobs=" + assoc +
		"ClusterName=c Account=lab UserName=alice(1000) ParentAccount= GrpSubmitJobs=N(8) MaxSubmitJobs=8(8)" + assoc +
		"ClusterName=c Account=big UserName=alice(1000) ParentAccount= GrpSubmitJobs=N(5) MaxSubmitJobs=5(5)" + assoc
	usages, err := slurm.ParseUsages(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for account, want := range map[string]string{
		"lab": "alice in account lab 8/8, account lab 9/9, account uni 12/70",
		"BIG": "account big 5/5, alice in account big 5/5",
	} {
		var got []string
		for _, l := range submitLimits(usages, "alice", 1000, account, "sbatch: AssocGrpSubmitJobsLimit") {
			got = append(got, fmt.Sprintf("%s %d/%d", l.Of, l.Used, l.Max))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %s", account, strings.Join(got, ", "))
		}
	}
}
