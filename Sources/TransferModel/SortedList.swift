/// Distinct elements in their order.
struct SortedList<Element: Comparable & Sendable>: Sendable {
    private var elements: [Element] = []

    var isEmpty: Bool { elements.isEmpty }
    var first: Element? { elements.first }

    func first(where holds: (Element) -> Bool) -> Element? { elements.first(where: holds) }

    mutating func insert(_ element: Element) { elements.insert(element, at: position(of: element)) }

    mutating func remove(_ element: Element) {
        let index = position(of: element)
        guard index < elements.count, elements[index] == element else { return }
        elements.remove(at: index)
    }

    /// Removes the elements up to the first one for which this does not hold.
    mutating func removePrefix(where holds: (Element) -> Bool) -> [Element] {
        let prefix = elements.prefix(while: holds)
        elements.removeFirst(prefix.count)
        return Array(prefix)
    }

    /// Of the first element that is not before this one.
    private func position(of element: Element) -> Int {
        var range = 0..<elements.count
        while !range.isEmpty {
            let middle = range.lowerBound + range.count / 2
            if elements[middle] < element {
                range = middle + 1..<range.upperBound
            } else {
                range = range.lowerBound..<middle
            }
        }
        return range.lowerBound
    }
}
