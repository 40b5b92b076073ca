package eval

import (
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// key is a key of an evaluator's configuration or criteria.
type key struct {
	name string
	// kind is that of the value; Null stands for any.
	kind input.Kind
	// otherwise is what the key is where it is not there; nil if it then has no value.
	otherwise any
	required  bool
	// values are those that a string may have, if they are limited.
	values []string
	// least and most limit a number; whole says that it is an integer.
	least, most float64
	whole       bool
	// items are the keys of the objects of an array.
	items []key
	about string
}

// config is an evaluator's configuration, or an object in it, while it is read. Its accessors know
// the default and the limits of a key by its name, and panic where the type does not have it.
type config struct {
	*input.Fields
	*input.Reader
	keys []key
}

func (c *config) key(name string) key {
	for _, k := range c.keys {
		if k.name == name {
			return k
		}
	}
	panic("the key " + name + " is in no table")
}

// Get returns the value of a key, whatever its kind, nil if it is not there.
func (c *config) Get(name string) *input.Node { return c.Fields.Get(c.key(name).name) }

// Has reports whether a key is there and not null.
func (c *config) Has(name string) bool { return c.Fields.Has(c.key(name).name) }

// String returns a string, one of the key's values if it has such. One that is required must be
// there and not be empty.
func (c *config) String(name string) string {
	k := c.key(name)
	switch otherwise, _ := k.otherwise.(string); {
	case k.required && (k.values == nil || !c.Has(name)):
		return c.RequiredString(name)
	case k.values != nil:
		return c.Enum(name, otherwise, k.values...)
	default:
		return c.Fields.String(name, otherwise)
	}
}

// Bool returns a boolean. UiPath also takes the words and numbers that mean one.
func (c *config) Bool(name string) bool {
	otherwise, _ := c.key(name).otherwise.(bool)
	n := c.Get(name)
	if n == nil || n.Kind != input.String && n.Kind != input.Number {
		return c.Fields.Bool(name, otherwise)
	}
	var v bool
	switch strings.ToLower(n.Text) {
	case "1", "t", "true", "y", "yes", "on":
		v = true
	case "0", "f", "false", "n", "no", "off":
	default:
		return c.Fields.Bool(name, otherwise)
	}
	c.Warnf(n, "expected a boolean; %s is read as %t", n.JSON(), v)
	return v
}

// Int returns a whole number.
func (c *config) Int(name string) int {
	k := c.key(name)
	otherwise, _ := k.otherwise.(int)
	return c.Fields.Int(name, otherwise, int(k.least), int(k.most))
}

// Float returns a number.
func (c *config) Float(name string) float64 {
	k := c.key(name)
	otherwise, _ := k.otherwise.(float64)
	return c.Fields.Float(name, otherwise, k.least, k.most)
}

// Strings returns an array of strings.
func (c *config) Strings(name string) []string {
	c.key(name)
	return c.Fields.Strings(name)
}

// Array returns the elements of an array with a reader of each; n is nil if there is no array.
func (c *config) Array(name string) (n *input.Node, items []*config) {
	k := c.key(name)
	if n = c.Optional(name, input.Array); n == nil {
		return nil, nil
	}
	for _, item := range n.Items {
		items = append(items, &config{c.Object(item), c.Reader, k.items})
	}
	return n, items
}

// names are the two spellings of a key that UiPath accepts.
func (k key) names() []string { return []string{k.name, input.Snake(k.name)} }

// in is the value of the key, nil if it is not there.
func (k key) in(criteria *input.Node) *input.Node {
	for _, name := range k.names() {
		if v := criteria.Member(name); v != nil {
			return v
		}
	}
	return nil
}

// expectedOutputKey are the criteria of those that compare the output with an expected one.
var expectedOutputKey = key{name: "expectedOutput", about: "the expected output; the evaluation's own `expectedOutput` if it is missing"}
