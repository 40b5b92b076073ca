package agent

import (
	"maps"
	"os"
	"regexp"
	"slices"
)

// variable is ${NAME} or, with what stands for a variable that is not set, ${NAME:-default}.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}`)

// Variables names every variable of the entry, each once and in order.
func (e Entry) Variables() []string { return e.variables(true) }

// Required names those that have no default.
func (e Entry) Required() []string { return e.variables(false) }

func (e Entry) variables(all bool) []string {
	values := slices.Collect(maps.Values(e.Env))
	if e.ACP != nil && e.Model != nil {
		values = append(values, e.Model.URL, e.Model.Key)
	}
	var names []string
	for _, value := range values {
		for _, m := range variable.FindAllStringSubmatch(value, -1) {
			if all || m[2] == "" {
				names = append(names, m[1])
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// expand resolves every variable of a value, or names one that is unknown.
func (o Options) expand(value string) (expanded, unknown string) {
	resolve := o.Resolve
	if resolve == nil {
		resolve = os.LookupEnv
	}
	expanded = variable.ReplaceAllStringFunc(value, func(ref string) string {
		m := variable.FindStringSubmatch(ref)
		if v, ok := resolve(m[1]); ok {
			return v
		}
		if m[2] != "" {
			return m[2][len(":-"):]
		}
		if unknown == "" {
			unknown = m[1]
		}
		return ""
	})
	return expanded, unknown
}
