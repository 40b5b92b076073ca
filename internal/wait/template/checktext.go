package template

import "github.com/evalrun/evalrun/internal/input"

// CheckText checks the ${VAR}s of a string; other values have none.
func CheckText(r *input.Reader, n *input.Node) {
	if n.Kind != input.String {
		return
	}
	if err := Check(n.Text); err != nil {
		r.Errorf(n, "%s", err)
	}
}
