package evaluator

import (
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// Key is a key of an evaluator's configuration or criteria.
type Key struct {
	// Name is its name in camelCase; snake_case is read too.
	Name string
	// Kind is the kind of the value; Null stands for any.
	Kind input.Kind
	// Otherwise is the value of a missing key; nil if it then has no value.
	Otherwise any
	Required  bool
	// Values are the values that a string may have, if they are limited.
	Values []string
	// Least and Most limit a number; Whole says that it is an integer.
	Least, Most float64
	Whole       bool
	// Items are the keys of the objects of an array.
	Items []Key
	// About describes the key in Markdown.
	About string
}

// Config is an evaluator's configuration, or an object in it, while it is read. Its accessors know
// the default and the limits of a key by its name, and panic if the type does not have the key.
type Config struct {
	*input.Fields
	*input.Reader
	keys []Key
}

// NewConfig begins to read an object with these keys.
func NewConfig(r *input.Reader, n *input.Node, keys []Key) *Config {
	return &Config{r.Object(n), r, keys}
}

func (c *Config) key(name string) Key {
	for _, k := range c.keys {
		if k.Name == name {
			return k
		}
	}
	panic("the key " + name + " is in no table")
}

// Get returns the value of a key, whatever its kind, nil if it is not there.
func (c *Config) Get(name string) *input.Node { return c.Fields.Get(c.key(name).Name) }

// Has reports whether a key is there and not null.
func (c *Config) Has(name string) bool { return c.Fields.Has(c.key(name).Name) }

// String returns a string, one of the key's values if it has such. A required one must be there and
// not be empty.
func (c *Config) String(name string) string {
	k := c.key(name)
	switch otherwise, _ := k.Otherwise.(string); {
	case k.Required && (k.Values == nil || !c.Has(name)):
		return c.RequiredString(name)
	case k.Values != nil:
		return c.Enum(name, otherwise, k.Values...)
	default:
		return c.Fields.String(name, otherwise)
	}
}

// Bool returns a boolean. UiPath also takes the words and numbers that mean one.
func (c *Config) Bool(name string) bool {
	otherwise, _ := c.key(name).Otherwise.(bool)
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
func (c *Config) Int(name string) int {
	k := c.key(name)
	otherwise, _ := k.Otherwise.(int)
	return c.Fields.Int(name, otherwise, int(k.Least), int(k.Most))
}

// Float returns a number.
func (c *Config) Float(name string) float64 {
	k := c.key(name)
	otherwise, _ := k.Otherwise.(float64)
	return c.Fields.Float(name, otherwise, k.Least, k.Most)
}

// Strings returns an array of strings.
func (c *Config) Strings(name string) []string {
	c.key(name)
	return c.Fields.Strings(name)
}

// Array returns the elements of an array with a reader of each; n is nil if there is no array.
func (c *Config) Array(name string) (n *input.Node, items []*Config) {
	k := c.key(name)
	if n = c.Optional(name, input.Array); n == nil {
		return nil, nil
	}
	for _, item := range n.Items {
		items = append(items, NewConfig(c.Reader, item, k.Items))
	}
	return n, items
}

// names returns the two spellings of a key that UiPath accepts.
func (k Key) names() []string { return []string{k.Name, input.Snake(k.Name)} }

// In returns the value of the key, nil if it is not there.
func (k Key) In(criteria *input.Node) *input.Node {
	for _, name := range k.names() {
		if v := criteria.Member(name); v != nil {
			return v
		}
	}
	return nil
}

// ExpectedOutputKey is the key of the criteria that hold an expected output.
var ExpectedOutputKey = Key{Name: "expectedOutput",
	About: "the expected output; the evaluation's own `expectedOutput` if it is missing"}
