package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxExpanded is how many nodes the aliases of a YAML document may expand to (the "billion laughs"
// document).
const maxExpanded = 100_000

type yamlParser struct {
	file string
	// aliases are the aliases that are being expanded, and expanded counts the nodes made for them so
	// far.
	aliases  map[*yaml.Node]bool
	expanded int
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

func parseYAML(file string, data []byte) (*Node, error) {
	docs, err := yamlDocuments(string(data))
	if err != nil {
		return nil, yamlSyntax(file, string(data), err)
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

func yamlDocuments(text string) (docs []*yaml.Node, err error) {
	dec := yaml.NewDecoder(strings.NewReader(text))
	for {
		var doc yaml.Node
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil {
			return nil, err
		}
		docs = append(docs, &doc)
	}
}

// yamlSyntax gives an error its line. yaml names the line where the block, list or text begins in
// which it finds the error, another time none, and some of its lines are counted from 0. So
// yamlSyntax looks for the line: it is the last one of the shortest beginning of the text that has
// the same error. A bracket or quote that is not closed is an error from its own line on.
func yamlSyntax(file, text string, err error) Problem {
	// yaml counts a beginning in the first line as none, so a line is put before it.
	text = "#\n" + strings.TrimPrefix(text, "\ufeff")
	if _, again := yamlDocuments(text); again != nil {
		err = again
	}
	ends := lineEnds(text)
	found := sort.Search(len(ends)-1, func(i int) bool {
		_, earlier := yamlDocuments(text[:ends[i]])
		return earlier != nil && earlier.Error() == err.Error()
	})
	message := yamlLine.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "")
	if strings.HasPrefix(message, "found a tab character") ||
		strings.HasPrefix(message, "found character that cannot start") {
		message += startHint(text[:ends[found]])
	}
	return Problem{File: file, Line: max(found, 1), Column: 1, Message: "not valid YAML: " + message}
}

// lineEnds returns the places in a text where its lines end; a text has one line at least.
func lineEnds(text string) (ends []int) {
	for i, c := range []byte(text) {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	if len(ends) == 0 || ends[len(ends)-1] < len(text) {
		ends = append(ends, len(text))
	}
	return ends
}

// startHint returns advice for the last line of a text, in which a value begins with a character
// that cannot begin one.
func startHint(text string) string {
	text = strings.TrimSuffix(text, "\n")
	last := text[strings.LastIndexByte(text, '\n')+1:]
	if indent := last[:len(last)-len(strings.TrimLeft(last, " \t"))]; strings.Contains(indent, "\t") {
		return "; the line is indented by a tab, expected blanks"
	}
	return "; a text that begins with one of @ ` % needs quotes"
}

// yamlProblem returns an error in the value of a node.
func yamlProblem(file string, y *yaml.Node, err error) Problem {
	message := yamlLine.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "")
	return Problem{File: file, Line: y.Line, Column: y.Column, Message: "not valid YAML: " + message}
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
			return yamlProblem(p.file, y, err)
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
			return yamlProblem(p.file, y, err)
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
