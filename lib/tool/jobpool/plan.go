package jobpool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/base/clock"
	ours "github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/base/replace"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// planAge is how long the options that were found for a request are used again, by any run of the user: the partition
// that is best now is rarely another one a moment later, and a plan is many requests to Slurm.
const planAge = 2 * time.Minute

// kept is a plan in the directory of cached answers.
type kept struct {
	Made time.Time `json:"made"`
	Plan *earliest `json:"plan"`
}

// planFile is where the plan for a request is kept; "": nowhere. Another cluster, or a change of the user's launchers, has
// another name.
func planFile(request string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	key := []string{request, os.Getenv("SLURM_CONF"), os.Getenv("LFIND_CONFIG")}
	for _, name := range (launcher.World{}).Files() {
		if st, err := os.Stat(name); err == nil {
			key = append(key, fmt.Sprint(name, clock.Modified(st).UnixNano(), st.Size()))
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(key, "\x00")))
	return filepath.Join(dir, "ponos", "plan-"+hex.EncodeToString(sum[:8])+".json")
}

// keptPlan is the plan that was made for a request a moment ago; nil: there is none, or its partitions are no longer up.
func keptPlan(ctx context.Context, request string) *earliest {
	b, err := ours.ReadFile(planFile(request)) // whose options are those of jobs of the user
	var k kept
	if err != nil || json.Unmarshal(b, &k) != nil || k.Plan == nil {
		return nil
	}
	if age := clock.Since(k.Made); age < 0 || age >= planAge {
		return nil
	}
	options, err := optionsOf(k.Plan.Args)
	if err != nil {
		return nil
	}
	partitions, err := (&slurm.Client{}).Partitions(ctx)
	if err != nil {
		return nil
	}
	wanted := strings.Split(options.Value("partition"), ",")
	if !slices.ContainsFunc(partitions, func(p slurm.Partition) bool {
		return p.State == "UP" && (slices.Contains(wanted, p.Name) || p.Default && !options.Has("partition"))
	}) {
		return nil
	}
	k.Plan.made = k.Made
	return k.Plan
}

// keepPlan keeps a plan for other runs. It is only an economy: that it cannot be written is no failure.
func keepPlan(request string, e *earliest) {
	name := planFile(request)
	b, err := json.Marshal(kept{clock.Now(), e})
	if name != "" && err == nil && os.MkdirAll(filepath.Dir(name), 0o700) == nil {
		_ = replace.File(name, b, 0o600)
	}
}
