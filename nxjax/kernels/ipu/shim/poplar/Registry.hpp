// Codelets that are linked into a program of the host: what a graph needs to make and run their vertices by name.
// Without headers of the standard library, since codelets are compiled with a small <cmath> of their own.
#pragma once

namespace poplar {
namespace host {

struct FieldEntry {
  const char *name;
  unsigned itemsize;
  bool reads, writes;
  void (*connect)(void *vertex, char *first, unsigned count);
};

struct AttributeEntry {
  const char *name;
  void (*set)(void *vertex, const void *word);
};

struct CodeletEntry {
  const char *name;
  unsigned size;
  const FieldEntry *fields;
  int fieldCount;
  const AttributeEntry *attributes;
  int attributeCount;
  void (*run)(void *vertex);
  CodeletEntry *next;
};

inline CodeletEntry *&codelets() {
  static CodeletEntry *first = nullptr;
  return first;
}

struct Registration {
  explicit Registration(CodeletEntry *entry) {
    entry->next = codelets();
    codelets() = entry;
  }
};

}  // namespace host
}  // namespace poplar
