package launcher

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/spelling"
)

// Misspelt returns a message about the first name in a request that no launcher has, with the
// closest existing name, or "" if all names exist. It is for requests without an answer.
func (s *Search) Misspelt(r request.Request) string {
	for _, a := range r.Alternatives {
		for _, c := range a.Where {
			known := s.names(c.Field)
			if len(known) == 0 || c.Not || slices.ContainsFunc(known, c.Matches) {
				continue
			}
			text := fmt.Sprintf("no launcher has the %s %q", c.Field, c.Pattern)
			switch c.Field {
			case "account":
				text = fmt.Sprintf("you have no account %q", c.Pattern)
			case "qos":
				text = fmt.Sprintf("you have no QoS %q", c.Pattern)
			}
			if near := spelling.Nearest(c.Pattern, known); near != "" {
				text += fmt.Sprintf("; did you mean %q?", near)
			}
			return text
		}
		for _, x := range a.GRES {
			if text := s.noSuch("gres", x.Name); text != "" {
				return text
			}
		}
		for _, x := range a.Licenses {
			if text := s.noSuch("license", x.Name); text != "" {
				return text
			}
		}
		for _, w := range a.GPUs {
			if text := s.misspeltModel(w.Models); text != "" {
				return text
			}
		}
	}
	return ""
}

// noSuch returns a message if no launcher has a GRES or a license, and all of them are known.
func (s *Search) noSuch(what, name string) string {
	for _, l := range s.Launchers {
		if s.skips(l) != nil || l.machine != nil {
			continue
		}
		if l.admission == nil || what == "license" && !l.admission.Known.Licenses {
			return ""
		}
	}
	known := s.names(what)
	if slices.Contains(known, name) {
		return ""
	}
	text := fmt.Sprintf("no launcher has the %s %q", what, name)
	if near := spelling.Nearest(name, known); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return text
}

// Unknown returns how many groups of nodes may match but have GPUs of unknown model or memory.
func (s *Search) Unknown() int {
	n := 0
	for _, l := range s.Launchers {
		n += l.unknown
	}
	return n
}

// misspeltModel returns a message if no launcher has a GPU that is, or may be, one of the
// models.
func (s *Search) misspeltModel(wanted []string) string {
	models := s.names("model")
	if len(wanted) == 0 || len(models) == 0 {
		return ""
	}
	for _, w := range wanted {
		if slices.ContainsFunc(models, func(m string) bool { return s.catalogue().Is(m, w) != gpu.No }) {
			return ""
		}
	}
	text := fmt.Sprintf("no launcher has a GPU of the model %q", strings.Join(wanted, ", "))
	if near := spelling.Nearest(wanted[0], models); near != "" {
		return text + fmt.Sprintf("; did you mean %q?", near)
	}
	return text + "; the models are " + strings.Join(models[:min(len(models), 10)], ", ")
}

// catalogue returns the catalogue of GPUs that the launchers use.
func (s *Search) catalogue() *gpu.Catalogue {
	for _, l := range s.Launchers {
		return l.catalogue
	}
	return gpu.Builtin()
}

// names returns the names that the searched launchers have for a field (partition, qos,
// account, feature, host, model, gres or license), sorted.
func (s *Search) names(field string) []string {
	known := map[string]bool{}
	add := func(names ...string) {
		for _, n := range names {
			if n != "" {
				known[n] = true
			}
		}
	}
	for _, l := range s.Launchers {
		if s.skips(l) != nil {
			continue
		}
		if field == "license" && l.admission != nil {
			for _, x := range l.admission.Licenses {
				add(x.Name)
			}
		}
		groups := []*group{}
		if l.machine != nil {
			groups = append(groups, l.machine)
		}
		for _, p := range l.partitions {
			groups = append(groups, p.groups...)
			if field == "partition" {
				add(p.name)
			}
			for _, c := range p.choices {
				switch field {
				case "qos":
					add(c.isQOS)
				case "account":
					add(c.isAccount)
				}
			}
		}
		for _, g := range groups {
			switch field {
			case "feature":
				add(g.features...)
			case "host":
				add(g.names()...)
			case "gres":
				for _, x := range g.gres {
					if add(x.Name); x.Type != "" {
						add(x.Name + ":" + x.Type)
					}
				}
			case "model":
				for i := range g.gpus {
					x := &g.gpus[i]
					if add(x.model, x.gres); x.model == "" && x.gres == "" {
						add(x.is.Label())
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(known))
}
