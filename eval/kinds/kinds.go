// Package kinds lists the kinds of evaluators that evalrun knows. Callers that make evaluators from
// definitions take the kinds from here.
package kinds

import (
	"fmt"

	"github.com/evalrun/evalrun/eval/check"
	"github.com/evalrun/evalrun/eval/command"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/judged"
	"github.com/evalrun/evalrun/eval/python"
	"github.com/evalrun/evalrun/eval/uipath"
)

// All has every kind. An evaluator that is in none of these lists does not exist.
var All = union(uipath.Kinds, check.Kinds, judged.Kinds, command.Kinds, python.Kinds)

// union refuses two kinds of one name.
func union(lists ...evaluator.Kinds) evaluator.Kinds {
	all := evaluator.Kinds{}
	for _, list := range lists {
		for name, kind := range list {
			if _, twice := all[name]; twice {
				panic(fmt.Sprintf("two kinds of evaluators are called %s", name))
			}
			all[name] = kind
		}
	}
	return all
}
