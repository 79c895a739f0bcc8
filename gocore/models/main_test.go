package models

import (
	"testing"

	"axlm/mlxc"
	"axlm/mlxc/mlxctest"
)

func TestMain(m *testing.M) { mlxctest.Main(m) }

func newScope(t *testing.T) *mlxc.Scope { return mlxctest.NewScope(t) }
