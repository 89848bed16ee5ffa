import CYaml

/// Limits the expanded size of a YAML text. The length of the text is no limit: each alias stands for all
/// that its anchor names, nested aliases included, so that a few lines can exceed any memory. The size is
/// computed from the parser's events, before nodes are made.
package enum YAMLBounds {
    /// Far more than a manifest or a configuration has.
    package static let nodeLimit = 100_000
    package static let depthLimit = 32

    /// The exceeded limit and its line; nil if there is none, or if the text is no YAML, which the reader
    /// reports.
    package static func excess(in text: String) -> (line: Int, problem: String)? {
        // It keeps a pointer to itself.
        let parser = UnsafeMutablePointer<yaml_parser_t>.allocate(capacity: 1)
        defer { unsafe parser.deallocate() }
        guard unsafe yaml_parser_initialize(parser) == 1 else { return nil }
        defer { unsafe yaml_parser_delete(parser) }
        unsafe yaml_parser_set_encoding(parser, YAML_UTF8_ENCODING)
        let bytes = Array(text.utf8)
        return unsafe bytes.withUnsafeBufferPointer { bytes in
            unsafe yaml_parser_set_input_string(parser, bytes.baseAddress, bytes.count)
            return unsafe excess(among: parser)
        }
    }

    /// The size of a node with its descendants.
    private struct Size {
        var nodes = 1
        var depth = 1

        mutating func add(_ inner: Size) {
            nodes = min(nodes + inner.nodes, nodeLimit + 1)
            depth = max(depth, inner.depth + 1)
        }
    }

    private static func excess(
        among parser: UnsafeMutablePointer<yaml_parser_t>
    ) -> (line: Int, problem: String)? {
        var total = 0
        var open: [(size: Size, anchor: String?)] = []
        var anchors: [String: Size] = [:]
        while true {
            var event = unsafe yaml_event_t()
            guard unsafe yaml_parser_parse(parser, &event) == 1 else { return nil }
            defer { unsafe yaml_event_delete(&event) }
            let line = unsafe Int(event.start_mark.line) + 1
            var complete: Size?
            switch unsafe event.type {
            case YAML_STREAM_END_EVENT:
                return nil
            case YAML_ALIAS_EVENT:
                // An undefined alias is an error that the reader reports.
                complete = unsafe name(event.data.alias.anchor).flatMap { anchors[$0] } ?? Size()
            case YAML_SCALAR_EVENT:
                complete = Size()
                if let anchor = unsafe name(event.data.scalar.anchor) { anchors[anchor] = Size() }
            case YAML_SEQUENCE_START_EVENT:
                open.append((Size(), unsafe name(event.data.sequence_start.anchor)))
            case YAML_MAPPING_START_EVENT:
                open.append((Size(), unsafe name(event.data.mapping_start.anchor)))
            case YAML_SEQUENCE_END_EVENT, YAML_MAPPING_END_EVENT:
                guard let (size, anchor) = open.popLast() else { return nil }
                complete = size
                if let anchor { anchors[anchor] = size }
            default:
                break  // where documents begin and end
            }
            if let complete {
                if open.isEmpty { total += complete.nodes } else { open[open.count - 1].size.add(complete) }
            }
            guard open.count + (complete?.depth ?? 0) <= depthLimit else {
                return (line, "is nested more than \(depthLimit) levels deep")
            }
            guard total + (open.last?.size.nodes ?? 0) <= nodeLimit else {
                return (line, "has more than \(nodeLimit) values, with those that aliases repeat")
            }
        }
    }

    private static func name(_ anchor: UnsafeMutablePointer<yaml_char_t>?) -> String? {
        unsafe anchor.map { unsafe String(cString: $0) }
    }
}
