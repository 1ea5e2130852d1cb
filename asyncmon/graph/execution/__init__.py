"""From fetches and feeds to a commit: plan, memory, execution, transactions."""
