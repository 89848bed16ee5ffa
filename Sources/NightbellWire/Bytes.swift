package import SwiftProtobuf

#if canImport(FoundationEssentials)
    package import FoundationEssentials
#else
    package import Foundation
#endif

// Fields of type bytes are `Data` in generated code; everything else has arrays.

extension [UInt8] {
    /// For a field of type bytes.
    package var asField: Data { Data(self) }
}

extension SwiftProtobuf.Message {
    /// Whether it has fields of a later schema. Those of the messages within it are not counted.
    package var hasUnknownFields: Bool { !unknownFields.data.isEmpty }
}
