package slurm

import "testing"

func TestLimitOfReason(t *testing.T) {
	for reason, want := range map[string]LimitKind{
		"AssocMaxJobsLimit":               {Bound: "Max", Resource: "jobs"},
		"AssocGrpSubmitJobsLimit":         {Bound: "Grp", Resource: "submit"},
		"AssocGrpCpuLimit":                {Bound: "Grp", Resource: "cpu"},
		"AssocGrpCPUMinutesLimit":         {Bound: "Grp", Resource: "cpu", Unit: "Minutes"},
		"AssocGrpCPURunMinutesLimit":      {Bound: "Grp", Resource: "cpu", Unit: "RunMinutes"},
		"AssocMaxCpuMinutesPerJobLimit":   {Bound: "Max", Resource: "cpu", Unit: "Minutes", Per: "Job"},
		"AssocMaxWallDurationPerJobLimit": {Bound: "Max", Resource: "wall", Per: "Job"},
		"AssocMaxMemPerNode":              {Bound: "Max", Resource: "mem", Per: "Node"},
		"QOSGrpGRES":                      {OfQOS: true, Bound: "Grp", Resource: "gres"},
		"QOSGrpMemLimit":                  {OfQOS: true, Bound: "Grp", Resource: "mem"},
		"QOSGrpWallLimit":                 {OfQOS: true, Bound: "Grp", Resource: "wall"},
		"QOSMaxGRESPerUser":               {OfQOS: true, Bound: "Max", Resource: "gres", Per: "User"},
		"QOSMaxJobsPerUserLimit":          {OfQOS: true, Bound: "Max", Resource: "jobs", Per: "User"},
		"QOSMaxSubmitJobPerUserLimit":     {OfQOS: true, Bound: "Max", Resource: "submit", Per: "User"},
		"QOSMaxMemoryPerJob":              {OfQOS: true, Bound: "Max", Resource: "mem", Per: "Job"},
		"QOSMinCpuNotSatisfied":           {OfQOS: true, Bound: "Min", Resource: "cpu", Per: "Job"},
		"QOSMinGRES":                      {OfQOS: true, Bound: "Min", Resource: "gres", Per: "Job"},
		"MaxMemoryPerAccount":             {OfQOS: true, Bound: "Max", Resource: "mem", Per: "Account"},
		"MaxCpuRunMinsPerUser":            {OfQOS: true, Bound: "Max", Resource: "cpu", Unit: "RunMinutes", Per: "User"},
		"MaxJobsPerAccount":               {OfQOS: true, Bound: "Max", Resource: "jobs", Per: "Account"},
	} {
		if got, ok := LimitOfReason(reason); !ok || got != want {
			t.Errorf("%s: %+v, %v", reason, got, ok)
		}
	}
	for _, reason := range []string{"Priority", "Resources", "QOSNotAllowed", "QOSUsageThreshold", "InvalidQOS", "MaxRequeue", "JobArrayTaskLimit", "AssociationJobLimit", ""} {
		if got, ok := LimitOfReason(reason); ok {
			t.Errorf("%q: %+v", reason, got)
		}
	}
	gpus := LimitKind{OfQOS: true, Bound: "Grp", Resource: "gres/gpu:a100"}
	if reason, _ := LimitOfReason("QOSGrpGRES"); !gpus.Is(reason) {
		t.Error("QOSGrpGRES means no GPUs")
	}
}
