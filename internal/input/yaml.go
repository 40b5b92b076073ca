package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxExpanded is how many nodes the aliases of a YAML document may expand to (the "billion laughs"
// document).
const maxExpanded = 100_000

type yamlParser struct {
	file string
	// aliases are those that are being expanded, and expanded counts the nodes made for them so
	// far.
	aliases  map[*yaml.Node]bool
	expanded int
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

func parseYAML(file string, data []byte) (*Node, error) {
	var docs []*yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	for {
		var doc yaml.Node
		if err := dec.Decode(&doc); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return nil, yamlProblem(file, err)
		}
		docs = append(docs, &doc)
	}
	if len(docs) == 0 {
		return nil, Problem{File: file, Line: 1, Column: 1, Message: "the file is empty; expected a YAML document"}
	}
	if len(docs) > 1 {
		return nil, Problem{File: file, Line: docs[1].Line, Column: 1, Message: "expected one YAML document, got several"}
	}
	p := &yamlParser{file: file, aliases: map[*yaml.Node]bool{}}
	return p.node(docs[0].Content[0], "", 0)
}

func yamlProblem(file string, err error) Problem {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1]) // the expression matches digits only
		message = strings.Replace(message, m[0], "", 1)
	}
	return Problem{File: file, Line: line, Column: 1, Message: "not valid YAML: " + message}
}

func (p *yamlParser) node(y *yaml.Node, path string, depth int) (*Node, error) {
	n := &Node{File: p.file, Line: y.Line, Column: y.Column, Path: path}
	if depth > maxDepth {
		return nil, p.problem(y, "", fmt.Sprintf("nested deeper than %d levels", maxDepth))
	}
	if len(p.aliases) > 0 {
		p.expanded++
	}
	if p.expanded > maxExpanded {
		return nil, p.problem(y, "", "the document is too large once its aliases are expanded")
	}
	switch y.Kind {
	case yaml.AliasNode:
		if p.aliases[y.Alias] {
			return nil, p.problem(y, "", "the alias *"+y.Value+" contains itself")
		}
		p.aliases[y.Alias] = true
		defer delete(p.aliases, y.Alias)
		return p.node(y.Alias, path, depth+1)
	case yaml.SequenceNode:
		n.Kind = Array
		for i, c := range y.Content {
			item, err := p.node(c, path+"["+strconv.Itoa(i)+"]", depth+1)
			if err != nil {
				return nil, err
			}
			n.Items = append(n.Items, item)
		}
		return n, nil
	case yaml.MappingNode:
		return n, p.mapping(n, y, depth)
	}
	return n, p.scalar(n, y)
}

func (p *yamlParser) mapping(n *Node, y *yaml.Node, depth int) error {
	n.Kind = Object
	seen := map[string]bool{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			return p.problem(key, n.Path, "expected a plain text key (merge keys and complex keys are not supported)")
		}
		path := join(n.Path, key.Value)
		if seen[key.Value] {
			return p.problem(key, path, "the key is given twice")
		}
		seen[key.Value] = true
		value, err := p.node(y.Content[i+1], path, depth+1)
		if err != nil {
			return err
		}
		n.Members = append(n.Members, Member{Key: key.Value, Line: key.Line, Column: key.Column, Value: value})
	}
	return nil
}

func (p *yamlParser) scalar(n *Node, y *yaml.Node) error {
	switch y.ShortTag() {
	case "!!null":
		n.Kind = Null
	case "!!bool":
		var b bool
		if err := y.Decode(&b); err != nil {
			return yamlProblem(p.file, err)
		}
		n.Kind, n.Text = Bool, strconv.FormatBool(b)
	case "!!int", "!!float":
		n.Kind = Number
		if json.Valid([]byte(y.Value)) {
			n.Text = y.Value
			return nil
		}
		// 0x1f, 1_000, .5 and the like are numbers in YAML and not in JSON.
		var f float64
		if err := y.Decode(&f); err != nil {
			return yamlProblem(p.file, err)
		}
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return p.problem(y, n.Path, "expected a finite number, got "+y.Value)
		}
		n.Text = strconv.FormatFloat(f, 'g', -1, 64)
	default:
		n.Kind, n.Text = String, y.Value
	}
	return nil
}

func (p *yamlParser) problem(y *yaml.Node, key, message string) Problem {
	return Problem{File: p.file, Line: y.Line, Column: y.Column, Key: key, Message: message}
}
