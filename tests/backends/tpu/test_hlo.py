"""Instructions, places and computations, read from an optimized module's text."""

from nxjax.backends.tpu.hlo import HloModule

TEXT = """HloModule m, is_scheduled=true, entry_computation_layout={(f32[8,128]{1,0:T(8,128)}, s32[]{:T(128)})->(f32[8,128]{1,0:T(8,128)}, s32[]{:T(128)})}

FileNames
1 "/a b/net.py"

FunctionNames
1 "layer/tanh"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=0 end_column=0}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


%fused (p: f32[8,128]) -> f32[8,128] {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %inside = f32[8,128]{1,0:T(8,128)} tanh(%p)
}

%body (t: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %t = (s32[]{:T(128)}, /*index=1*/f32[8,128]{1,0:T(8,128)}) parameter(0)
  %g = f32[8,128]{1,0:T(8,128)} get-tuple-element(%t), index=1
  ROOT %r = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) tuple(%g, %g)
}

ENTRY %main (a: f32[8,128], n: s32[]) -> (f32[8,128], s32[]) {
  %a = f32[8,128]{1,0:T(8,128)} parameter(0)
  %f = f32[8,128]{1,0:T(8,128)} fusion(%a), kind=kLoop, calls=%fused, metadata={op_name="layer/tanh" stack_frame_id=1}, backend_config={"estimated_cycles":"77"}
  %w = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(%f), condition=%fused, body=%body, metadata={op_name="scan" source_file="net.py" source_line=3}
  %c = f32[8,128]{1,0:T(8,128)} custom-call(%f, %w), custom_call_target="Sort", metadata={source_file="-" source_line=9}
  ROOT %out = (f32[8,128]{1,0:T(8,128)}, s32[]{:T(128)}) tuple(%c, %c)
}
"""  # noqa: E501


def test_a_module_is_read():
    m = HloModule(TEXT)
    assert [s.type for s in m.arguments] == ["f32[8,128]", "s32[]"]
    assert [s.type for s in m.results] == ["f32[8,128]", "s32[]"]
    assert m.entry == "main" and set(m.computations) == {"fused", "body", "main"}
    named = {i.name: i for i in m.everything()}
    f = named["f"]
    assert (f.opcode, f.operands, f.called, f.cycles) == ("fusion", ("a",), ("fused",), 77)
    assert (f.at, f.scope, f.bytes) == (("/a b/net.py", 12), "layer/tanh", 4096)
    assert named["w"].at == ("net.py", 3) and set(named["w"].called) == {"fused", "body"}
    assert named["c"].at is None and named["c"].target == "Sort"
    assert len(named["t"].results) == 2


def test_what_runs_are_all_instructions_but_those_inside_of_fusions():
    names = {i.name for i in HloModule(TEXT).scheduled()}
    assert "inside" not in names and {"f", "w", "g", "c"} <= names


def test_a_text_that_is_no_module_is_empty():
    m = HloModule("nothing\n")
    assert m.arguments == () and m.main() == []
