package agent

import (
	"cmp"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"

	"github.com/evalrun/evalrun/internal/input"
)

// variable matches ${NAME} or, with a default for a variable that is not set, ${NAME:-default}.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}`)

// Variables names every variable of the entry, each once and in order.
func (e Entry) Variables() []string { return e.variables(true) }

// Required names the variables that have no default.
func (e Entry) Required() []string { return e.variables(false) }

func (e Entry) variables(all bool) []string {
	values := slices.Collect(maps.Values(e.Env))
	if e.Model != nil {
		values = append(values, e.Model.URL, e.Model.Key)
	}
	if texts := e.typeOf().Texts; texts != nil {
		values = append(values, texts(e)...)
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

// MissingKey names the variables of which one should hold the key of the agent's model. It returns
// nil if one does, or if the agent may have credentials of its own. Its home is new, so these can
// only come from what its entry adds to the registry's. A type that says nothing about credentials
// has none but the key.
func (e Entry) MissingKey(resolve func(name string) (string, bool)) (names []string) {
	if e.Model == nil || e.Model.Key == "" {
		return nil
	}
	if key, _ := (Options{Resolve: resolve}).Expand(e.Model.Key); key != "" {
		return nil
	}
	if t := e.typeOf(); t.Credentials != nil {
		base, ok := Registered(cmp.Or(e.Extends, e.Name))
		if !ok || base.Type != e.Type || t.Credentials(e, base) {
			return nil
		}
	}
	return VariablesIn(e.Model.Key)
}

// VariablesIn names the variables of a value, in the order in which they stand there.
func VariablesIn(value string) (names []string) {
	for _, m := range variable.FindAllStringSubmatch(value, -1) {
		names = append(names, m[1])
	}
	return names
}

// CheckEndpoint records what is wrong with the key and the URL of a model's endpoint, which f has under
// the names "key" and urlName.
func CheckEndpoint(r *input.Reader, f *input.Fields, key, urlName, address string) {
	if key != "" && len(VariablesIn(key)) == 0 {
		r.Errorf(f.Get("key"),
			"expected the name of a variable as in ${OPENAI_API_KEY}; a key itself would be stored with the run")
	}
	if u, err := url.Parse(address); len(VariablesIn(address)) == 0 &&
		(err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		r.Errorf(f.Get(urlName), "expected a URL such as https://api.openai.com/v1, got %q", address)
	}
}

// BaseURLs returns the variables in the URL of the agent's model.
func (e Entry) BaseURLs() []string {
	if e.Model != nil {
		return VariablesIn(e.Model.URL)
	}
	return nil
}

// Expand resolves every variable of a value, or names one that is unknown.
func (o Options) Expand(value string) (expanded, unknown string) {
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
